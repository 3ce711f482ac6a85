/// A place on Earth, in degrees.
package struct GeoPoint: Sendable, Hashable {
    package let latitude: Double
    package let longitude: Double

    /// The radii that clients use to convert a distance into radians.
    package static let earthRadiusInKilometers = 6371.0
    package static let earthRadiusInMiles = 3958.8

    /// `nil` if it is not a place: the latitude exceeds 90 degrees, or the longitude 180.
    package init?(latitude: Double, longitude: Double) {
        guard (-90...90).contains(latitude), (-180...180).contains(longitude) else { return nil }
        self.latitude = latitude
        self.longitude = longitude
    }
}
